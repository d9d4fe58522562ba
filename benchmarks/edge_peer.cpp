// OpenCV from pixels to a histogram of words, for benchmarks/edge.py: SIFT, then the nearest word by FLANN, one thread.
//
//   edge_peer IMAGE.pgm WORDS N_WORDS REPEATS < keypoints
//
// WORDS holds N_WORDS x 128 float32; keypoints are lines of x, y and size. Prints milliseconds of processor time, medians:
// dense SIFT at the keypoints and FLANN, of which FLANN alone; then SIFT with its own keypoints and FLANN, and how many.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <opencv2/core.hpp>
#include <opencv2/features2d.hpp>
#include <string>
#include <vector>

static double now() { return 1000.0 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

static double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    cv::setNumThreads(1);
    std::ifstream file(argv[1], std::ios::binary);
    std::string magic;
    int width = 0, height = 0, most = 0;
    file >> magic >> width >> height >> most;
    file.get();
    cv::Mat image(height, width, CV_8U);
    file.read(reinterpret_cast<char *>(image.data), static_cast<std::streamsize>(width) * height);
    cv::Mat words(std::stoi(argv[3]), 128, CV_32F);
    std::ifstream(argv[2], std::ios::binary).read(reinterpret_cast<char *>(words.data), static_cast<std::streamsize>(words.total() * 4));
    std::vector<cv::KeyPoint> dense;
    for (float x, y, size; std::cin >> x >> y >> size;) dense.emplace_back(x, y, size, 0.0F);  // upright

    const auto sift = cv::SIFT::create();
    cv::FlannBasedMatcher matcher;
    matcher.add(std::vector<cv::Mat>{words});
    matcher.train();
    std::vector<double> all, matching, sparse;
    std::size_t n_sparse = 0;
    for (int k = 0; k < std::stoi(argv[4]); ++k) {
        std::vector<cv::KeyPoint> points = dense;
        std::vector<cv::DMatch> found;
        cv::Mat described;
        const double start = now();
        sift->compute(image, points, described);
        const double middle = now();
        matcher.match(described, found);
        std::vector<int> counts(static_cast<std::size_t>(words.rows));
        for (const cv::DMatch &one : found) ++counts[static_cast<std::size_t>(one.trainIdx)];
        all.push_back(now() - start);
        matching.push_back(now() - middle);
        const double again = now();
        sift->detectAndCompute(image, cv::noArray(), points, described);
        matcher.match(described, found);
        sparse.push_back(now() - again);
        n_sparse = points.size();
    }
    std::printf("%f %f %f %zu\n", median(all), median(matching), median(sparse), n_sparse);
}
